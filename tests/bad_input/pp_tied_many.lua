-- One linear that every block uses, on four pipeline ranks.
local nn = require "tandem.nn"
local function build(c)
  local shared = nn.linear(16, 16)
  local m = { emb = nn.embedding(32, 16), shared = shared, layers = {}, head = nn.linear(16, 32) }
  for i = 1, 4 do
    m.layers[i] = nn.block { own = nn.linear(16, 16), forward = function(b, x) return nn.silu(b.own(x)) end }
  end
  m.layers = nn.list(m.layers)
  m.forward = function(self, tokens, labels)
    local x = self.emb(tokens)
    for _, b in ipairs(self.layers) do x = self.shared(b(x)) end
    return nn.cross_entropy(self.head(x), labels)
  end
  return nn.module(m)
end
return plan { model = build(), batch = { global = 4, seq = 8 }, mesh = { pp = 4 }, parallel = { pp {} } }
