-- The passes of a plan for a row of published training runs: parallelism, recomputation, number
-- types.
local gpus, cells, megatrons = require "tandem.gpus", require "tandem.published.cells", require "tandem.published.megatron"
local recipes, blocks = require "tandem.published.recipes", require "tandem.published.blocks"
local schedules = require "tandem.published.schedules"
local count, has = cells.count, cells.has
local m = {}

-- Words of the cell `ac`. full: every block is recomputed. selective(op): torchtitan's policy,
-- which keeps attention and every second product of a block. selective(layer, every 2): every
-- second block is recomputed. A row that recomputes only the attention core needs no pass, because
-- flash attention recomputes it anyway.
--
-- Returns the pass that recomputes about `n` of `own` blocks: every k-th block, with k = own / n
-- rounded.
local function some_blocks(own, n)
  local each = (own + n // 2) // n
  return ac { mode = "full", every = each > 1 and each or nil }
end

-- Returns the pass for Megatron's --recompute-modules, or nil if nothing is left to recompute.
-- Norms are small, so they are left out. Flash attention recomputes the attention core anyway. If
-- scores are written and the core is recomputed, the profile keeps no scores. A library model of a
-- family has other modules: if the row names the MLP, the whole block is recomputed, except
-- attention and its products.
local function some_modules(row)
  local modules, ops = blocks.recomputed(row)
  if modules then return ac { modules = modules, ops = ops } end
  if not row.names_parts and has(row, "ac", "[%(%[ ]mlp") then
    return ac { mode = "full", ops = { "attention", "linear_q", "linear_kv", "linear_o" } }
  end
  return nil
end

local function policy_of_ops(how)
  return ac { mode = "full", ops = how and how.forgets_attention and { "linear" } or { "attention", "linear" }, alternate = true }
end

function m.checkpointing(row, how)
  -- "full block 21" recomputes the first 21 blocks of each part of the pipeline, which is a stage
  -- or a chunk (core/transformer/transformer_block.py: _checkpointed_forward). The plan recomputes
  -- every n-th block instead.
  local some = tonumber((row.ac or ""):match "^full block (%d+)" or (row.ac or ""):match "^full %(block, (%d+) layers")
  if some then return some_blocks(count(row, "n_layers") // (count(row, "pp") * count(row, "vp", 1)), some) end
  local part = tonumber((row.ac or ""):match "^full part ([%d%.]+)")
  if part then
    local own = count(row, "n_layers") // count(row, "pp")
    local n = math.floor(part * own + 0.5)
    return n > 0 and some_blocks(own, n) or nil
  end
  if has(row, "ac", "^full") or cells.switch(row.ac) then return ac "full" end
  if cells.switch(row.ac) == false or has(row, "ac", "^none") then return nil end
  local every = tonumber((row.ac or ""):match "^selective%(layer, every (%d+)")
  if every then return ac { mode = "full", every = every > 1 and every or nil } end
  -- If a row says only "selective", Megatron recomputes the attention core, and torchtitan applies
  -- its policy of ops.
  local titan = has(row, "framework", "^torchtitan") or has(row, "framework", "torchtune") or has(row, "framework", "vescale")
  if has(row, "ac", "selective%(op%)") or titan and has(row, "ac", "^selective$") then return policy_of_ops(how) end
  local kept = (row.ac or ""):match "^keeps (.*)$"
  if kept then
    local ops = {}
    for op in kept:gmatch "%S+" do ops[#ops + 1] = op end
    return ac { mode = "full", ops = ops }
  end
  if has(row, "ac", "^selective$") and not has(row, "framework", "megatron") and not has(row, "framework", "nemo") and not has(row, "framework", "kempner") then
    cells.note("%s does not say what %s recomputes; the attention core is assumed, which flash attention recomputes anyway", row.framework, row.ac)
  end
  if has(row, "ac", "^selective") then return some_modules(row) end
  return nil
end

local is_float8, is_float4 = cells.is_float8, cells.is_float4
function m.gathers_bytes(row)
  return is_float8(row) and not has(row, "precision", "rowwise") and not has(row, "precision", "mx") and not has(row, "precision", "bfloat16 all%-gather")
end
-- Returns the dtype of products that are neither in 8 nor in 4 bits. TF32 is fp32 with another peak
-- (published/cluster.lua).
function m.half_of(row, how)
  local wide = has(row, "precision", "^t?fp?32") or has(row, "precision", "^float32")
  if wide and not row.precision:gsub("%b()", ""):lower():find "f[lp]?%a*16" then return "fp32" end
  if has(row, "precision", "fp16") or how.half == "fp16" then return "fp16" end
  return "bf16"
end

-- Returns the number of ranks that share a sequence. In torchtitan they gather keys and values
-- (context_parallel_rotate_method is "allgather" by default). In Ulysses they exchange tokens for
-- heads, and repeat KV heads if there are too few. `goes_around` decides between a ring and a
-- gather.
function m.sharers(row)
  local n = count(row, "cp")
  if n == 1 and not has(row, "sp", "ulysses [2-9]") and not has(row, "sp", "ulysses 1%d") then return 1 end
  if has(row, "framework", "^torchtitan") then return n end
  -- Transformer Engine's ring moves as many bytes as a gather of keys and values, and overlaps as
  -- well. But a rank of the ring holds only two parts of the keys and values at a time.
  if not has(row, "sp", "ulysses") then return n end
  local said = math.tointeger(tonumber(row.sp:match "(%d+)")) or n
  -- if there are fewer KV heads than ranks, DeepSpeed repeats them
  if count(row, "n_kv_heads") % said ~= 0 and count(row, "n_heads") % said == 0 then row.n_kv_heads = tostring(said) end
  return said
end

local function add(list, pass) if pass then list[#list + 1] = pass end end

-- Returns true if the ranks of Megatron's cp exchange tokens for heads (--cp-comm-type a2a) instead
-- of passing keys and values around a ring. Each rank then needs a KV head.
local function trades_tokens(row)
  return has(row, "cp_comm", "^%W*a2a%W*$") and count(row, "n_kv_heads") % (count(row, "tp") * count(row, "cp")) == 0
end

-- Returns true if the row's ranks pass keys and values around a ring, or if the row does not say
-- how ranks share sequences.
local function is_ring(row)
  return count(row, "cp") > 1 and not has(row, "framework", "^torchtitan") and not has(row, "sp", "ulysses") and not trades_tokens(row)
end

-- Returns true if the plan also uses a ring. Megatron and NeMo use one by default (cp_comm_type
-- p2p). A plan's ring can compute only plain attention. For other attention, and for all frameworks
-- except NeMo, the plan gathers keys and values instead.
local function goes_around(row)
  if not is_ring(row) then return false end
  local plain = cells.is_open(row.mla) and cells.is_open(row.hybrid_pattern)
  if plain and has(row, "framework", "^nemo") then return true end
  cells.note("the ring over cp = %d is planned as a gather of keys and values", count(row, "cp"))
  return false
end

-- Returns true if the plan exchanges tokens for heads. Megatron's Mamba mixers do so, too
-- (mamba_context_parallel.py), and a plan shares sequences in the same way in all layers. With tp,
-- a plan cannot exchange tokens for the heads of a mixer.
local function trades_heads(row)
  local scans = has(row, "hybrid_pattern", "^[^/]*m") and count(row, "tp") == 1
  return has(row, "sp", "^ulysses") or trades_tokens(row) or scans and count(row, "n_kv_heads") % count(row, "cp") == 0
end

local function is_block_float8(row) return not is_float4(row) and (has(row, "precision", "mx") or has(row, "fp8_recipe", "^mx")) end

-- Returns the kind of scales of 8-bit operands. NVFP4 has a scale for every 16 elements. Its
-- products are planned with rowwise 8-bit operands at the 4-bit peak (published/cluster.lua), so
-- the plan counts twice the bytes of these operands. MXFP8 is planned only on GPUs that multiply
-- such blocks, and only if the tokens of a rank are whole blocks.
local function scales_of(row, how)
  local by_blocks = has(row, "precision", "deepseek") or has(row, "precision", "1d[x/%s]?2d") or has(row, "precision", "block") or has(row, "fp8_recipe", "^block") or has(row, "precision", "%d%s*x%s*128%f[%D]")
  if not is_block_float8(row) and by_blocks and not is_float4(row) then
    cells.note("scales of blocks of 128 numbers are planned as scales of rows")
    return "rowwise"
  end
  if not is_block_float8(row) then return (is_float4(row) or has(row, "precision", "rowwise") or has(row, "fp8_recipe", "rowwise")) and "rowwise" or "tensorwise" end
  local name = gpus.find(row.gpu)
  local shared, tokens = how.cp or m.sharers(row), megatrons.tokens(row) // (cells.sequence(row) and count(row, "tp") or 1)
  local known = name and gpus.arch[gpus.gpus[name].arch].block_scales
  if known and (shared == 1 or trades_heads(row)) and tokens // shared % 32 == 0 then return "mxfp8" end
  cells.note("the block scales of MXFP8 are planned as scales of rows: %s", not known and "the GPU does not multiply blocks" or
    shared > 1 and "ranks share sequences" or "a rank's tokens are not whole blocks")
  return "rowwise"
end

local function eight_bits(row, how)
  if not is_float8(row) and not is_float4(row) then return nil end
  local scales = scales_of(row, how)
  -- torchtitan gathers tokens in 16 bits if scales are rowwise. Its parallel styles that gather 8
  -- bits work only with tensorwise scales (models/llama3/infra/parallelize.py:
  -- enable_float8_tensorwise_tp).
  local first = scales == "rowwise" and has(row, "framework", "^torchtitan") and has(row, "precision", "rowwise") and cells.sequence(row)
  return float8 { recipe = scales, gather_first = first or nil, skip_indivisible = true, skip = recipes.tail(row),
    fsdp_gather = how.byte_gather and m.gathers_bytes(row) or nil }
end

local function micro_batches(row, how)
  local data = (how.mesh.dp_shard or 1) * (how.mesh.dp_replicate or 1) * (how.mesh.ep or 1)
  return count(row, "global_batch_seqs") // ((how.micro or count(row, "micro_batch")) * data)
end

-- Returns the largest number of chunks of a rank, up to `vp`, for which every chunk has experts.
-- (In Llama 4 Maverick, every second layer has experts.) A plan adds up the losses of experts from
-- stage to stage, and cannot skip a stage.
local function chunks_with_experts(row, n_pp, vp)
  local period, layers, most = math.tointeger(tonumber(row.moe_layer_freq)), count(row, "n_layers"), vp
  if not period or cells.is_open(row.moe_experts) then return vp end
  while vp > 1 and (most % vp ~= 0 or layers // (n_pp * vp) % period ~= 0) do vp = vp - 1 end
  if vp ~= most then cells.note("%d chunks are planned instead of %d, so that each has experts", vp, most) end
  return vp
end

-- Returns the blocks of each stage if there are one or two blocks fewer than stages: the last stage
-- then has only the head and the loss and, with two fewer, the first has only the embedding, as in
-- Llama 3 405B (arXiv 2407.21783, 3.3.2). Returns nil if more blocks are missing.
local function without_ends(n_layers, n_stages)
  if n_layers < n_stages - 2 then return nil end
  if n_layers == n_stages - 1 then cells.note("%d blocks for %d chunks: a last chunk without a block is assumed", n_layers, n_stages) end
  local split = {}
  for stage = 1, n_stages do split[stage] = 1 end
  split[n_stages] = 0
  if n_layers == n_stages - 2 then split[1] = 0 end
  return split
end

-- Returns the pass for a pipeline.
local function pipeline(row, how)
  local n_pp, vp, split = count(row, "pp"), count(row, "vp", 1), how.is_megatron and megatrons.split(row) or nil
  local named, chunks = schedules.of(row)
  if named then return pp { schedule = named, chunks = chunks > 1 and chunks or nil, split = split and #split == n_pp * chunks and split or nil } end
  local n_micro, own = how.n_micro or micro_batches(row, how), how.is_megatron and vp > 1 and megatrons.schedule(row) or nil
  if not split and vp > 1 and count(row, "n_layers") < n_pp * vp then split = without_ends(count(row, "n_layers"), n_pp * vp) end
  -- The plan has one stage on each rank instead of chunks if the split has another number of parts,
  -- if the number of micro-batches is not a multiple of pp, or if there are fewer blocks than
  -- stages.
  if split and #split ~= n_pp * vp or n_micro % n_pp ~= 0 and not own or not split and count(row, "n_layers") < n_pp * vp then
    if vp > 1 then cells.note("one stage on each rank is planned instead of %d chunks", vp) end
    vp = 1
  end
  if split and #split ~= n_pp * vp then split = nil end
  vp = chunks_with_experts(row, n_pp, vp)
  return pp { schedule = vp > 1 and (own or "interleaved_1f1b") or "1f1b", chunks = vp > 1 and vp or nil, split = split }
end

-- Returns the passes of the plan, in the order that the planner needs. how: what the framework's
-- function in run.lua returned.
function m.passes(row, how)
  local list, n_tp = {}, count(row, "tp")
  if count(row, "pp") > 1 then add(list, pipeline(row, how)) end
  if n_tp > 1 then add(list, tp { sequence = cells.sequence(row), keep_gathered = how.keep_gathered }) end
  if (how.ep or count(row, "ep", 1)) > 1 then add(list, ep {}) end
  local around = goes_around(row)
  if (how.cp or m.sharers(row)) > 1 then add(list, cp { mode = trades_heads(row) and "all_to_all" or around and "ring" or "all_gather" }) end
  add(list, eight_bits(row, how))
  if how.pieces and how.pieces > 1 then add(list, tile { pieces = how.pieces }) end
  add(list, how.ac ~= false and m.checkpointing(row, how) or nil)
  add(list, how.data)
  if row.compile == "yes" and how.compile then add(list, compile(how.compile)) end
  return list
end

return m
