local nn = require "tandem.nn"
local emb = nn.embedding(32, 16)
local m = { emb = emb, layers = {}, head = nn.linear(16, 32, { weight = emb }) }
for i = 1, 2 do
  m.layers[i] = nn.block { own = nn.linear(16, 16), forward = function(b, x) return nn.silu(b.own(x)) end }
end
m.layers = nn.list(m.layers)
m.forward = function(self, tokens, labels)
  local x = self.emb(tokens)
  for _, b in ipairs(self.layers) do x = b(x) end
  return nn.cross_entropy(self.head(x), labels)
end
return plan { model = nn.module(m), batch = { global = 4, seq = 8 }, mesh = { pp = 2 }, parallel = { pp { tied = "refuse" } } }
