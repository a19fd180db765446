-- Machines that a row names: nodes of a maker, machines of clouds, and public clusters. They give the GPU and the GPUs of a node to
-- rows that leave these open.
local cells, gpus = require "tandem.published.cells", require "tandem.gpus"
local m = {}

-- Machines of clouds: the GPU, and the GPUs of a whole machine.
-- kind: documented; the pages of AWS, Google and Azure on their machines
m.clouds = { { "p5%.", "H100-SXM5-80GB", 8 }, { "p5en?%.", "H200", 8 }, { "p6%-b200%.", "B200-SXM-180GB", 8 }, { "p4d%.", "A100-SXM4-40GB", 8 }, { "p4de%.", "A100-SXM4-80GB", 8 },
  { "nd96asr", "A100-SXM4-40GB", 8 }, { "nd96amsr", "A100-SXM4-80GB", 8 }, { "nd40", "V100-SXM2-32GB", 8 }, { "p3dn%.", "V100-SXM2-32GB", 8 }, { "p3%.", "V100-SXM2-16GB", 8 },
  { "dgx%-2%f[%D]", "V100-SXM2-32GB", 16 }, { "g5%.", "A10G", 8 }, { "g6%.", "L4-24GB", 8 }, { "g4dn%.", "T4-16GB", 8 }, { "a2[%s%-]mega", "A100-SXM4-40GB", 16 },
  { "a3[%s%-]high", "H100-SXM5-80GB", 8 }, { "a3[%s%-]mega", "H100-SXM5-80GB", 8 }, { "a3[%s%-]ultra", "H200", 8 }, { "a2%-high", "A100-SXM4-40GB", 8 }, { "a2%-ultra", "A100-SXM4-80GB", 8 } }

-- Public clusters: the GPU, and the GPUs of a node. false: its nodes have GPUs of several kinds.
-- kind: documented; the user guides of NERSC, OLCF, ALCF, CSC, Cineca, JSC, CSCS, BSC and IDRIS
local centres = { { "perlmutter", "A100-SXM4-40GB", 4 }, { "polaris", "A100-SXM4-40GB", 4 }, { "summit", "V100-SXM2-16GB", 6 }, { "frontier", "MI250X-64GB", 8 },
  { "lumi", "MI250X-64GB", 8 }, { "juwels", "A100-SXM4-40GB", 4 }, { "leonardo", false, 4 }, { "alps", "GH200-96GB", 4 }, { "clariden", "GH200-96GB", 4 },
  { "marenostrum", false, 4 }, { "selene", "A100-SXM4-80GB", 8 }, { "isambard", "GH200-96GB", 4 }, { "jupiter", "GH200-96GB", 4 } }

-- Cells that may name a machine. The first that does counts.
local places = { "gpu", "interconnect", "n_gpus", "gpus_per_node", "platform", "environment" }

-- Returns true if a cloud's machine is a node with all of its GPUs: "a2-highgpu-8g" and "p5.48xlarge", but not "a2-highgpu-1g",
-- "p5.4xlarge" or "8 p5.48xlarge GPUs".
function m.is_whole(row, text)
  if text:find "%sgpus?%s*$" then return false end
  local n = text:match "^[%w%-]*gpu%-(%d+)g"
  if n then return cells.is_open(row.gpus_per_node) or tonumber(n) == cells.count(row, "gpus_per_node") end
  local family, size = text:match "^(%a)[%w%-]*%.(%d*)xlarge"
  return not family or size == "48" or family == "p" and (size == "24" or size == "16")
end

-- Returns the entry of a cloud's machine that a text in lower case names, and the text from its name on; nil: it names none.
local function cloud_of(text)
  for _, known in ipairs(m.clouds) do
    local at = text:find("%f[%w]" .. known[1])
    if at then return known, text:sub(at) end
  end
end

local is_node = { [1] = true, [2] = true, [4] = true, [8] = true, [16] = true }

-- Returns the GPUs of a node that a text in lower case states: "8 GPUs a node", "4xH200/node", and in the cell of the GPU also
-- "4/node" and "8 per node". In the cell of the network, such numbers may count cards.
local function stated(key, text)
  local chip = "[ghabvlm][bhi]?%d%d%d?%d?%a*"
  local n = text:match "%f[%d](%d+)%s*gpus?%s*/%s*node" or text:match "%f[%d](%d+)%s*gpus?%s+an?%s+node" or text:match "%f[%d](%d+)%s*gpus?%s+per%s+node" or text:match "%f[%d](%d+)%-gpu%f[%A]" or
    text:match("%f[%d](%d+)%s*x?%s*" .. chip .. "%s*/%s*node") or text:match("%f[%d](%d+)%s*x?%s*" .. chip .. "%s+per%s+node")
  if not n and key == "gpu" then n = text:match "%f[%d](%d+)%s*/%s*node" or text:match "%f[%d](%d+)%s+per%s+node" end
  return is_node[tonumber(n) or 0] and tonumber(n) or nil
end

-- Returns the GPUs of a node that a text in lower case implies by the name of a machine; nil: it names none.
local function implied(row, text)
  local known, rest = cloud_of(text)
  if known and m.is_whole(row, rest) then return tonumber(rest:match "^[%w%-]*gpu%-(%d+)g") or known[3] end
  if known then return nil end
  for _, centre in ipairs(centres) do if text:find("%f[%a]" .. centre[1] .. "%f[%A]") then return centre[3] end end
  local maker = text:find "%f[%a]dgx%f[%A]" or text:find "%f[%a]hgx%f[%A]"
  if maker and not text:find "g[bh]%d" and not text:find "station" then return 8 end
  return nil
end

-- Fills the GPUs of a node, and names the GPU by its machine if the row's name of the GPU gives neither its memory nor its board.
function m.fill(row)
  local text
  for _, key in ipairs(places) do
    text = (row[key] or ""):lower()
    if cells.is_open(row.gpus_per_node) and key ~= "n_gpus" and key ~= "gpus_per_node" then
      local n = stated(key, text)
      if n then row.gpus_per_node = tostring(n) end
    end
  end
  for _, key in ipairs(places) do
    text = (row[key] or ""):lower()
    if cells.is_open(row.gpus_per_node) then
      local n = implied(row, text)
      if n then row.gpus_per_node = tostring(n) end
    end
    local known, rest = cloud_of(text)
    if known and cells.is_open(row.interconnect) then row.interconnect = rest:match "^[%w%.%-]+" end
    for _, centre in ipairs(known and {} or centres) do if text:find("%f[%a]" .. centre[1] .. "%f[%A]") then known = centre end end
    local bare = (row.gpu or ""):upper():match "^%s*N?V?I?D?I?A?M?%s*([AHVG][H]?%d%d%d)%s*$"
    if known and known[2] and bare and (gpus.find(known[2]) or ""):find("^" .. bare .. "%-") then row.gpu = known[2] end
  end
  -- "8x H100" and "2 nodes": the GPU's cell gives those of a node
  local each = (row.gpu or ""):match "^%s*(%d+)%s*[xX]%s*%a"
  if cells.is_open(row.gpus_per_node) and is_node[tonumber(each) or 0] and (row.n_gpus or ""):lower():find "^%s*%d*%s*%a*%s*node" then row.gpus_per_node = each end
  -- a node has four superchips
  if cells.is_open(row.gpus_per_node) and (row.gpu or ""):upper():find "G[HB][23]00" then row.gpus_per_node = "4" end
end

-- Gives the cell `gpu` the library's words: the GPU of a cloud's machine, "H100" for "H-100". A cell that offers several GPUs is refused.
function m.gpu(row)
  local text = row.gpu:lower()
  local known = cloud_of(text)
  local name = "[ghabv]b?h?%d%d%d"
  local two = text:find(name .. "%s*[/|,&]%s*" .. name) or text:find(name .. "%s+or%s+" .. name) or text:find(name .. "%s+and%s+" .. name)
  local sizes = text:find "%f[%d]%d+%s*g?i?b?%s*[/|]%s*%d+%s*gi?b" or text:find "%f[%d]%d+%s*g?i?b?%s+or%s+%d+%s*gi?b"
  if two or sizes and not text:find "gh200" and not text:find "mi250" then cells.refuse("gpu names several devices: %s", row.gpu:sub(1, 60)) end
  if known then row.gpu = known[2] return end
  row.gpu = row.gpu:gsub("_", "-"):gsub("^([HAB])%-(%d%d%d)", "%1%2")
end

return m
