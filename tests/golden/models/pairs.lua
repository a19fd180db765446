-- Blocks of a norm and a pair of products: the smallest model that has units, stages and splits over tp.
-- layers: the number of blocks. tied: the head shares the embedding's weight.
local nn = require "tandem.nn"

local function block()
  return nn.block {
    norm = nn.rmsnorm(32), up = nn.linear(32, 64), down = nn.linear(64, 32),
    tp_col = "up", tp_row = "down",
    forward = function(m, x) return x + m.down(nn.silu(m.up(m.norm(x)))) end,
  }
end

return function(options)
  local embed = nn.embedding(64, 32)
  return nn.module {
    embed = embed, layers = nn.list(options.layers, block),
    head = nn.linear(32, 64, { weight = options.tied and embed or nil }), tp_vocab = { "embed", "head" },
    forward = function(m, tokens, labels)
      return nn.cross_entropy(m.head(m.layers(m.embed(tokens))), labels)
    end,
  }
end
