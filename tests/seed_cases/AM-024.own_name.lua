-- expect: ok mesh dp_shard=2
-- A model of the user's own is not models.phi, though its name begins alike.
local nn = require "tandem.nn"
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = { name = "phi-x", config = { heads = 4 }, build = function()
    return nn.module { e = nn.embedding(16, 8),
      b = nn.block { n = nn.rmsnorm(8), forward = function(m, x) return x + m.n(x) end }, h = nn.linear(8, 16),
      forward = function(m, x, y) return nn.cross_entropy(m.h(m.b(m.e(x))), y) end }
  end },
  hf = { class = "LlamaForCausalLM", torch_dtype = "float32" },
}
