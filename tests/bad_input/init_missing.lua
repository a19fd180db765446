-- One parameter has no initialiser, so it would start with the old content of its memory.
local nn = require "tandem.nn"
return plan {
  model = nn.module {
    embed = nn.embedding(32, 16),
    head = nn.linear(16, 32, { init = nn.uninitialized }),
    forward = function(m, tokens, labels) return nn.cross_entropy(m.head(m.embed(tokens)), labels) end,
  },
  batch = { global = 2, seq = 8 },
}
