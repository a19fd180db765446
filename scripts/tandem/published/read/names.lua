-- The names of frameworks and models in published training runs, as the tables write them.
local m = {}

-- Names of frameworks. Sources also write "Megatron Bridge", "NVIDIA Megatron-LM", "MCore", "LLM
-- Foundry" or "pytorch/torchtitan". If the owner of a repository precedes a known name, the owner
-- is removed. A "-" in `names` matches a blank, "-", "_" or nothing.
local names = { "megatron-lm", "megatron-core", "megatron-bridge", "megatron-deepspeed", "llm-foundry", "gpt-neox", "llama-factory", "colossal-ai", "torch-titan",
  "torch-tune", "max-text", "intern-evo", "nano-tron", "deep-speed", "x-tuner", "ve-scale", "kempner-forge", "fms-fsdp", "hugging-face", "nemo-automodel", "nemo" }
local joined = { ["torch-titan"] = "torchtitan", ["torch-tune"] = "torchtune", ["max-text"] = "maxtext", ["intern-evo"] = "internevo", ["nano-tron"] = "nanotron",
  ["deep-speed"] = "deepspeed", ["x-tuner"] = "xtuner", ["ve-scale"] = "vescale", ["kempner-forge"] = "kempnerforge", ["hugging-face"] = "huggingface",
  ["colossal-ai"] = "colossal-ai" }
local owners = { "nvidia%-nemo", "nvidia", "pytorch", "meta%-pytorch", "mosaicml", "databricks", "microsoft", "deepspeedai", "huggingface", "eleutherai", "hpcaitech",
  "internlm", "allenai", "stanford%-crfm", "volcengine", "google", "ai%-hypercomputer", "hiyouga", "kempnerinstitute" }

local model_owners = { "meta%-llama/", "mistralai/", "qwen/", "deepseek%-ai/", "google/", "microsoft/", "eleutherai/", "mosaicml/", "nvidia/", "tiiuae/", "bigscience/", "facebook/",
  "openai/", "ibm%-granite/", "bigcode/", "internlm/", "01%-ai/", "thudm/", "zai%-org/", "moonshotai/", "allenai/", "databricks/", "openai%-community/", "meta[%s_%-]llama" }

-- Removes the owner from a model's name: "meta-llama/Llama-2-7b-hf", "Meta-Llama-3-8B". Writes a size behind the name: "175B GPT-3".
local function model(row)
  row.model = row.model:gsub("^%s*(%d[%d%.]*[bBmMtT])[%s_%-]+(%a[%w%.%-]*)", "%2 %1")
  for _, owner in ipairs(model_owners) do
    local stop = select(2, row.model:lower():find("^" .. owner))
    if stop then row.model = row.model:sub(owner:find "/$" and stop + 1 or stop - 4) return end
  end
end

local function framework(row)
  local text = row.framework:gsub("^[Mm][Cc]ore%f[%A]", "Megatron-Core"):gsub("^[Mm]%-?[Bb]ridge%f[%A]", "Megatron-Bridge"):gsub("^[Nn]e[Mm]o[%s/]+([Mm]egatron[%s_%-]*[Bb]ridge)", "%1")
  text = text:gsub("^nvcr%.io/nvidia/", ""):gsub("^[Mm]egatron%-?DS%f[%A]", "Megatron-DeepSpeed"):gsub("^[Mm]egatron%-?%s?[LlMm]*%s*[%+&]%s*[Dd]eep[Ss]peed", "Megatron-DeepSpeed"):gsub("^[Nn]e[Mm]o:", "NeMo ")
  text = text:gsub("^[Mm]osaic[Mm][Ll]%s+[Cc]omposer", "composer/llm-foundry"):gsub("^[Tt]itan%f[%A]", "torchtitan"):gsub("^[Ii]ntern[Ll]?[Mm]?[%-%s]*[Tt]rain", "InternEvo"):gsub("^MLM%f[%A]", "Megatron-LM")
  if text:find "^[Mm]egatron%s*$" or text:find "^[Mm]egatron%s*[%(2]" then text = text:gsub("^[Mm]egatron", "Megatron-LM") end
  if text:lower():find "^primus" and text:lower():find "torchtitan" then text = "torchtitan (" .. text .. ")" end -- Primus has two backends, torchtitan and Megatron
  for _, owner in ipairs(text:find "Release" and {} or owners) do  -- "NVIDIA NeMo Framework Release 25.09" is the name of a container
    local rest = text:lower():match("^%s*" .. owner .. "[%s/]+()")
    for _, name in ipairs(rest and names or {}) do
      if text:lower():find("^" .. name:gsub("%-", "[%%s_%%-]*"), rest) then text = text:sub(rest) break end
    end
  end
  for _, name in ipairs(names) do
    local at, stop = text:lower():find((name:gsub("%-", "[%%s_%%-]*")))
    if at then text = text:sub(1, at - 1) .. (joined[name] or text:sub(at, at) .. name:sub(2)) .. text:sub(stop + 1) end
  end
  row.framework = text
end

-- Writes the names of the row's framework and model in the tables' words.
function m.normalise(row)
  model(row)
  framework(row)
end

return m
