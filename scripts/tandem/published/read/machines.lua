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

-- Public clusters: the GPU, and the GPUs of a node. A bare chip, such as "V100", does not tell its memory: no GPU of the library has
-- that memory, or no document was found that states it. mixed: other nodes have more memory.
-- kind: documented; the guides to Frontier (OLCF), Alps (CSCS) and JUPITER (JSC); the pages on Perlmutter, LUMI, Polaris and Summit in
-- the manuals of WarpX, libEnsemble and RADICAL-Pilot; Narayanan et al., arXiv 2104.04473, section 5 (Selene)
local centres = { { "perlmutter", "A100-SXM4-40GB", 4, mixed = true }, { "polaris", "A100", 4 }, { "summit", "V100", 6 }, { "frontier", "MI250X-64GB", 8 },
  { "lumi", "MI250X-64GB", 8 }, { "alps", "GH200-96GB", 4 }, { "alps", "A100", 4 }, { "clariden", "GH200-96GB", 4 }, { "selene", "A100-SXM4-80GB", 8 },
  { "jupiter", "GH200-96GB", 4 } }
-- kind: documented; pages on these clusters that their owners did not write
for _, centre in ipairs { { "juwels", "A100-SXM4-40GB", 4 }, { "leonardo", "A100", 4 }, { "marenostrum", "H100", 4 }, { "isambard%-ai", "GH200-96GB", 4 } } do centres[#centres + 1] = centre end

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

-- Returns the chip in a GPU's name: "A100" for "A100-SXM4-40GB".
local function chip_of(name) return name:match "^%w+" end

-- Returns true if the row's GPU may be that of a machine. A cell may name the cluster of another run, or a city.
local function agrees(row, machine)
  local own = gpus.find(row.gpu or "")
  return own == nil or chip_of(own) == chip_of(machine[2])
end

-- Returns the public cluster that a text in lower case names, or nil.
local function centre_of(row, text)
  for _, centre in ipairs(centres) do
    if text:find("%f[%a]" .. centre[1] .. "%f[%A]") and agrees(row, centre) then return centre end
  end
  return nil
end

local is_node = { [1] = true, [2] = true, [4] = true, [6] = true, [8] = true, [16] = true }

-- Returns the GPUs of a node that a text in lower case states: "8 GPUs a node", "4xH200/node", "8-GPU server", and in the cell of the
-- GPU also "4/node", "8 per node" and "4-GPU". In the cell of the network, such numbers may count cards or the GPUs of a group.
local function stated(key, text)
  local chip = "[ghabvlm][bhi]?%d%d%d?%d?%a*"
  local n = text:match "%f[%d](%d+)%s*gpus?%s*/%s*node" or text:match "%f[%d](%d+)%s*gpus?%s+an?%s+node" or text:match "%f[%d](%d+)%s*gpus?%s+per%s+node" or
    text:match "%f[%d](%d+)%-gpu%s+node" or text:match "%f[%d](%d+)%-gpu%s+server" or
    text:match("%f[%d](%d+)%s*x?%s*" .. chip .. "%s*/%s*node") or text:match("%f[%d](%d+)%s*x?%s*" .. chip .. "%s+per%s+node")
  if not n and key == "gpu" then n = text:match "%f[%d](%d+)%s*/%s*node" or text:match "%f[%d](%d+)%s+per%s+node" or text:match "%f[%d](%d+)%-gpu%f[%A]" end
  return is_node[tonumber(n) or 0] and tonumber(n) or nil
end

-- Returns the GPUs of a node that a text in lower case implies by the name of a machine; nil: it names none.
local function implied(row, text)
  local known, rest = cloud_of(text)
  if known and not agrees(row, known) then return nil end
  if known and m.is_whole(row, rest) then return tonumber(rest:match "^[%w%-]*gpu%-(%d+)g") or known[3] end
  if known then return nil end
  local centre = centre_of(row, text)
  if centre then return centre[3] end
  local maker = text:find "%f[%a]dgx%f[%A]" or text:find "%f[%a]hgx%f[%A]"
  if maker and not text:find "g[bh]%d" and not text:find "station" and not text:find "spark" then return 8 end
  return nil
end

-- Names the GPU by the machine that a text in lower case names, if the cell `gpu` has only the chip's name.
local function name_gpu(row, text)
  local known, rest = cloud_of(text)
  if known and cells.is_open(row.interconnect) then row.interconnect = rest:match "^[%w%.%-]+" end
  known = known or centre_of(row, text)
  local bare = (row.gpu or ""):upper():match "^%s*N?V?I?D?I?A?M?%s*([AHVG][H]?%d%d%d)%s*$"
  if not known or not gpus.gpus[known[2]] or bare ~= chip_of(known[2]) then return end
  row.gpu = known[2]
  if known.mixed then cells.note("the memory of the GPU is not stated; %s is assumed, as in most nodes of %s", known[2], known[1]) end
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
    name_gpu(row, text)
  end
  -- "8x H100" and "2 nodes": the GPU's cell gives those of a node
  local each = (row.gpu or ""):match "^%s*(%d+)%s*[xX]%s*%a"
  if cells.is_open(row.gpus_per_node) and is_node[tonumber(each) or 0] and (row.n_gpus or ""):lower():find "^%s*%d*%s*%a*%s*node" then row.gpus_per_node = each end
  -- Nodes of GB200 and GB300 (trays) have four GPUs. Those of GH200 are assumed to have four, as in large clusters.
  local name = (row.gpu or ""):upper()
  if cells.is_open(row.gpus_per_node) and name:find "G[HB][23]00" then
    row.gpus_per_node = name:find "NVL2%f[%D]" and "2" or "4"
    if name:find "GH200" and not name:find "NVL[24]%f[%D]" and row.n_gpus ~= "1" then cells.note "gpus_per_node is not stated; 4 is assumed" end
  end
end

-- Gives the cell `gpu` the library's words: the GPU of a cloud's machine, "H100" for "H-100". A cell that offers several GPUs, or
-- another GPU than that of its machine, is refused.
function m.gpu(row)
  local text = row.gpu:lower()
  local known = cloud_of(text)
  local name = "[ghabv]b?h?%d%d%d"
  local two = text:find(name .. "%s*[/|,&]%s*" .. name) or text:find(name .. "%s+or%s+" .. name) or text:find(name .. "%s+and%s+" .. name)
  local sizes = text:find "%f[%d]%d+%s*g?i?b?%s*[/|]%s*%d+%s*gi?b" or text:find "%f[%d]%d+%s*g?i?b?%s+or%s+%d+%s*gi?b"
  if two or sizes and not text:find "gh200" and not text:find "mi250" then cells.refuse("gpu names several devices: %s", row.gpu:sub(1, 60)) end
  local other = known and (not agrees(row, known) or text:find "80%s*gi?b" and not known[2]:find "80GB" or text:find "%f[%d]40%s*gi?b" and known[2]:find "80GB") and gpus.find(row.gpu) ~= known[2]
  if other then cells.refuse("gpu names another device than its machine: %s", row.gpu:sub(1, 60)) end
  if known then row.gpu = known[2] return end
  row.gpu = row.gpu:gsub("_", "-"):gsub("^([HAB])%-(%d%d%d)", "%1%2")
end

return m
