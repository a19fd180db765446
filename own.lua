local nn = require 'tandem.nn'
local function build(c)
  local function layer() return nn.block {
    f = nn.module { up = nn.linear(c.dim, 12, { bias = true }), down = nn.linear(12, c.dim, { bias = true }),
      fsdp2_shard = true, forward = function(m, x) return m.down(m.up(x)) end },
    tp_col = 'f.up', tp_row = { 'f.down' }, forward = function(m, x) return x + m.f(x) end } end
  return nn.module { e = nn.embedding(5, c.dim), layers = nn.list(3, layer), head = nn.linear(c.dim, 5),
    tp_vocab = { 'e', 'head' }, forward = function(m, t, y)
      return nn.cross_entropy(m.head(m.layers(m.e(t))), y) end }

end
return plan { batch = { seq = 6, global = 4, micro = 2 },
  model = { name = 'own', config = { dim = 8 }, build = build } }
