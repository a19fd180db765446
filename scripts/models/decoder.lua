-- The frame of a decoder: an embedding of the tokens, c.layers blocks, a norm, and a head that
-- scores the next token. block(c, index) makes the block with that index; the first is 0.
local nn = require "tandem.nn"

return function(c, block)
  return nn.module {
    tok_embeddings = nn.embedding(c.vocab, c.dim),
    layers = nn.list(c.layers, function(index) return block(c, index) end),
    norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    output = nn.linear(c.dim, c.vocab),
    tp_vocab = { "tok_embeddings", "output" },
    forward = function(m, tokens, labels)
      return nn.cross_entropy(m.output(m.norm(m.layers(m.tok_embeddings(tokens)))), labels)
    end,
  }
end
