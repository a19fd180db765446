local nn = require "tandem.nn"
local function build()
  return nn.module {
    embed = nn.embedding(32, 8),
    both = nn.linear(8, 32, { segments = { 20, 12 } }), one = nn.linear(20, 8), two = nn.linear(12, 8),
    tp_vocab = { "embed", "both" }, tp_col = "head", tp_row = { "one", "two" },
    head = nn.linear(8, 32),
    forward = function(m, tokens, labels)
      local x = m.both(m.embed(tokens))
      return nn.cross_entropy(m.head(m.one(nn.segment(x, 1)) + m.two(nn.segment(x, 2))), labels)
    end,
  }
end
return plan {
  model = { name = "fused", config = {}, build = build },
  batch = { global = 2, seq = 8 },
  mesh = { tp = 2 },
  parallel = { tp {} },
}
