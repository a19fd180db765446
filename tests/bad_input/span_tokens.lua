local nn = require "tandem.nn"
local function build()
  return nn.module {
    embed = nn.embedding(64, 8), head = nn.linear(8, 64),
    forward = function(m, tokens, labels)
      return nn.cross_entropy(m.head(nn.span(m.embed(tokens), 10, 23)), labels)
    end,
  }
end
return plan { model = { name = "span", build = build }, batch = { global = 1, seq = 32 } }
