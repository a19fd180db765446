-- A norm between the head and the loss.
local nn = require "tandem.nn"
local function build()
  return nn.module {
    embed = nn.embedding(32, 16), head = nn.linear(16, 32), norm = nn.rmsnorm(32),
    forward = function(m, tokens, labels) return nn.cross_entropy(m.norm(m.head(m.embed(tokens))), labels) end,
  }
end
return plan {
  model = { name = "normed", config = {}, build = build },
  batch = { global = 4, seq = 16 },
  parallel = { tile {} },
}
