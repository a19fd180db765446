-- Reads the cell `interconnect` of a row of published training runs: the network cards of a node,
-- their rate, and the links within a node. Sources write these in many ways: "8x400Gb IB", "400Gb/s
-- RoCE per GPU", "PCIe Gen4".
local cells = require "tandem.published.cells"
local m = {}

-- Words of links within a node (near), and of cards for other uses (apart). A part of the cell with
-- such a word describes no network between nodes.
local near = { "nvlink", "nvswitch", "nvl%d", "xgmi", "infinity fabric", "pcie", "pci%-e" }
local apart = { "storage", "management", "mgmt", "front%-?end" }
local networks = { "infiniband", "%f[%a]ib%f[%A]", "roce", "rdma", "ethernet", "gbe%f[%A]", "gige", "%f[%a]efa", "slingshot", "omni%-?path",
  "%f[%a][efhnx]dr", "connectx", "%f[%a]cx%-?%d", "%f[%a]nics?%f[%A]", "%f[%a]hcas?%f[%A]", "bluefield", "tcpx", "%f[%a]tcp%f[%A]" }
local totals = { "per node", "/node", "%f[%a]a node", "node%-node", "node to node", "per host", "/host", "per server", "/server", "per instance",
  "per machine", "gb node", "aggregate", "in total", "%f[%a]total" }
local of_each = { "per gpu", "/gpu", "a gpu", "per device", "%f[%a]each%f[%A]", "per nic", "/nic", "per port", "per rail" }

-- The Gbit/s of a network or a card that a cell names without a number. The longest name comes
-- first.
-- kind: datasheet; InfiniBand's generations, NVIDIA's cards, HPE Slingshot, Omni-Path
local generations = { { "hdr[%s%-]?100", 100 }, { "ndr[%s%-]?200", 200 }, { "%f[%a]fdr", 56 }, { "%f[%a]edr", 100 }, { "%f[%a]hdr", 200 }, { "%f[%a]ndr", 400 },
  { "%f[%a]xdr", 800 }, { "connectx[%s%-]?5", 100 }, { "connectx[%s%-]?6", 200 }, { "connectx[%s%-]?7", 400 }, { "connectx[%s%-]?8", 800 },
  { "%f[%a]cx%-?5", 100 }, { "%f[%a]cx%-?6", 200 }, { "%f[%a]cx%-?7", 400 }, { "%f[%a]cx%-?8", 800 }, { "slingshot[%s%-]?10", 100 }, { "slingshot", 200 }, { "omni%-?path", 100 } }

-- The Gbit/s of all cards of a cloud's machine together. kind: documented; the pages of AWS (P4,
-- P5) and Google (A3) on their machines
local machines = { { "p4de?%f[%W]", 400 }, { "p5e?n?%f[%W]", 3200 }, { "a3[%s%-]?mega", 1600 }, { "a3[%s%-]?high", 800 } }

-- The GB/s of 16 PCIe lanes by generation, in each direction. kind: datasheet; PCI-SIG
local lanes = { [3] = 15.75, [4] = 31.5, [5] = 63, [6] = 121 }

local function finds(text, words)
  for _, word in ipairs(words) do if text:find(word) then return true end end
  return false
end

-- Rewrites all rates in one way: "400 Gbps", "400Gbit/s" and "400G" become "400gb" (Gbit/s), and
-- "50 GB/s" becomes "400 bytegb", because it may be a rate within a node.
local function uniform(cell)
  local text = cells.without_denied(cell, networks):gsub("(%d),(%d%d%d)%f[%D]", "%1%2"):gsub("G[Bb][Pp][Ss]", "Gb/s"):gsub("G[Bb]its?/s", "Gb/s"):gsub("G[Bb]it", "Gb")
  text = text:gsub("%d+%s*GB%f[^%w/]", " "):gsub("%-%d+g%f[%A]", " ") -- removes sizes of memory ("80 GB") and the end of a machine's name ("-8g")
  text = text:gsub("(%d+%.?%d*)%s*GB/s", function(n) return ("%g bytegb"):format(8 * tonumber(n)) end)
  -- no node's cards send a terabyte in a second, so "3.2 TB/s" of a network means terabits
  local bits = finds(text:lower(), networks) and not finds(text:lower(), near) and 1000 or 8000
  text = text:gsub("(%d+%.?%d*)%s*TB/s", function(n) return ("%g bytegb"):format(bits * tonumber(n)) end)
  text = text:gsub("(%d+%.?%d*)%s*Tb[p/]s", function(n) return ("%ggb"):format(1000 * tonumber(n)) end)
  text = text:lower():gsub("(%d)%s*gb/s", "%1gb"):gsub("(%d)%s*gb%f[%A]", "%1gb"):gsub("(%d)%s*g%f[%A]", "%1gb"):gsub("(%d)%s*gb?e%f[%A]", "%1gb ethernet")
  text = text:gsub("(%d)%s*gige", "%1gb ethernet"):gsub("%s*[x*]%s*(%d)", "x%1"):gsub("(%d)%s+x%f[%A]", "%1x")
  return (text:gsub("(%d)x([a-z])", "%1x %2"))
end

-- Returns the Gbit/s in a part of the cell, and the place where the digits begin; nil: the part
-- names no rate.
local function rate_of(part)
  local at, _, gbit = part:find "(%d+%.?%d*)gb"
  if not at and finds(part, networks) then at, _, gbit = part:find "(%d+%.?%d*) bytegb" end
  if at then return tonumber(gbit), at end
  if not finds(part, networks) then return nil end
  at, _, gbit = part:find "%f[%d]([1248]00)%f[%D]"
  if at and not part:gsub("%d%s?x", " "):find "[a-z]%-?[1248]00" then return tonumber(gbit), at end
  for _, known in ipairs(generations) do
    at = part:find(known[1])
    if at then return known[2], at end
  end
  return nil
end

-- Returns the number of cards that the text gives before the rate ("8x400gb", "4x connectx-7 ib ndr
-- 400gb", "8 nics of 400gb") or after it ("400gb x8"), or nil if it gives none. at: the place of
-- the rate.
local function cards_of(part, at)
  local before, after = part:sub(1, at - 1), part:sub(at):gsub("^connectx[%s%-]?%d", "card"):gsub("^cx[%s%-]?%d", "card") -- the 7 of "connectx-7" is no number of cards
  if before:find "%f[%a]single%f[%A]" and not before:find "single[%s%-]port" and not before:find "single[%s%-]process" or before:find "%f[%a]one%f[%A]" and not before:find "one[%s%-]process" then return 1 end
  return tonumber(before:match "(%d+)x$" or before:match "^.*%f[%w](%d+)x%s" or part:find("^%a", at) and before:match "(%d+)%s+$" or
    before:match "(%d+)%s+nics?%f[%A]" or before:match "(%d+)%s+hcas?%f[%A]" or
    before:match "(%d+)%s+[a-z%s]*cards?%f[%A]" or before:match "(%d+)%s+[a-z%s]*ports?%f[%A]" or before:match "(%d+)%s+rails?%f[%A]" or after:match "^[%d%.]+gbx(%d+)" or after:match "^[%d%.]+gb%s[a-z]+x(%d+)" or
    after:match "^%a%w*x(%d+)%f[%D]" or after:match "%f[%d](%d)%s+nics?%f[%A]" or after:match "%f[%d](%d)%s+hcas?%f[%A]" or after:match "%f[%d](%d)%s+ports?%f[%A]")
end

-- Returns the number of a node's cards, the Gbit/s of each, and true if the part states the number.
-- Returns nil if the part names no cards.
local function cards(part, per_node, arch)
  if finds(part, apart) or finds(part, near) and not finds(part, networks) then return nil end
  local gbit, at = rate_of(part)
  if not gbit or gbit == 0 then return nil end
  local n = cards_of(part, at)
  if n == 1 and finds(part, of_each) then return per_node, gbit end -- "1 NIC per GPU"
  if n and n > 0 and n <= 64 then return math.tointeger(n), gbit, true end
  if finds(part, of_each) then return per_node, gbit end
  -- ConnectX-8, which is sold with Blackwell, is the first card with 800 Gbit/s. With older GPUs,
  -- 800 Gbit/s is the sum over the cards of a node.
  if gbit == 800 and arch ~= "Blackwell" and arch ~= "CDNA4" then return per_node, gbit / per_node end
  if finds(part, totals) or gbit > 800 or part:find "%f[%a]efa" then return per_node, gbit / per_node end
  -- Ethernet with a rate is assumed to be one card of a node, unless the cell says otherwise. The
  -- same holds for a rate of at most 50 Gbit/s without the name of a network, because only Ethernet
  -- is that slow.
  if gbit <= 50 and not finds(part, networks) then return 1, gbit end
  if (part:find "ethernet" or part:find "%f[%a]tcp%f[%A]") and not part:find "roce" and not part:find "rdma" then return 1, gbit end
  return per_node, gbit
end

-- Returns the number of cards that another part of the cell gives: "100 Gb/s EDR (1 NIC)". Returns
-- nil if none does.
local function stated_cards(text)
  for _, word in ipairs { "nics?", "hcas?", "ports?", "cards?" } do
    local n = text:match("%f[%d](%d)%s+" .. word .. "%f[%A]")
    if n and n ~= "0" then return tonumber(n) end
  end
  return nil
end

-- Splits the cell into its parts: at ";" and ",", and at words and signs between networks, such as
-- "and".
local function parts_of(text)
  local list = {}
  text = text:gsub("net:", ";"):gsub(" and ", ";"):gsub("%s%+%s", ";"):gsub("%s/%s", ";")
  for part in text:gmatch "[^;,]+" do
    -- removes the name and the rate of links within a node: "nvlink4 900 bytegb", "nvlink
    -- 7200bytegb"
    for _, word in ipairs(near) do part = part:gsub(word .. "[%w%.%-]*[%s:]*gen?%s*%d*%s*[%d%.]* ?b?y?t?e?g?b?", " "):gsub(word .. "[%w%.%-]*[%s:]*[%d%.]*%s*bytegb", " ") end
    list[#list + 1] = part
  end
  return list
end

-- The Gbit/s of all cards of AWS's machines, by the generation of their GPUs, for a cell that says
-- only "EFA".
-- kind: documented; AWS's pages of P3, P4 and P5
local of_aws = { Volta = 100, Ampere = 400, Hopper = 3200 }

-- Returns the number of a node's network cards and the GB/s of each, or nil if the cell does not
-- say. arch: the GPU's generation.
function m.cards(cell, per_node, arch)
  local text = uniform(cell)
  for _, form in ipairs { (text:gsub("%b()", " ")), (text:gsub("[()]", ";")) } do
    for _, part in ipairs(parts_of(form)) do
      local n, gbit, stated = cards(part, per_node, arch)
      if n == per_node and not stated and not finds(text, of_each) then n = stated_cards(text) or n end
      if n then return n, gbit / 8 end
    end
  end
  for _, known in ipairs(machines) do
    if text:find(known[1]) then return per_node, known[2] / per_node / 8 end
  end
  if text:find "%f[%a]efa%f[%W]" and of_aws[arch] then return per_node, of_aws[arch] / per_node / 8 end
  return nil, nil
end

-- Returns true if the cell contains a rate, even if `cards` could not read it.
function m.has_rate(cell) return uniform(cell):find "%dgb" ~= nil end

-- Returns the GB/s of PCIe in each direction if a node's GPUs have no other links. Returns 0 if the
-- cell names PCIe without its generation, and nil if it does not name PCIe or names other links.
function m.pcie(cell)
  local text = cells.without_denied(cell:lower():gsub("pci%-e", "pcie"), { "nvlink%d?", "nvswitch", "pcie" })
  local _, stop = text:find "%f[%w]pcie"
  if not stop or text:find "nvl" or text:find "nvswitch" or text:find "xgmi" or text:find "sxm" or text:find "pcie%-nic" or text:find "gpu%-pcie" then return nil end
  local n = text:match "pcie%s*g?e?n?[%s%-]*([3456])" or text:match "gen[%s%-]*([3456])[%s%-]*pcie"
  return lanes[tonumber(n)] or 0
end

return m
