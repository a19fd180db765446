-- expect: note[data-none] every replica trains a model of its own
-- expect: ok mesh tp=2 | original miles-credit
return require "dialects.credit" {
  world_size = 4, seq_length = 16, as = "original",
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "none", tensor = 2 } },
}
