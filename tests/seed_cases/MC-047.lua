-- expect: error[tp-style] tp_col = 'norm' | nn.layernorm
return require "dialects.credit" {
  world_size = 2, seq_length = 5,
  model = require "parts.pair" { column = "norm" },
  trainer = { parallelism = { data = "none", tensor = 2 } },
}
