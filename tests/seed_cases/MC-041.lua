-- expect: error[divides-heads] level 0: heads=4 not divisible by tp_size=3
-- expect: error[divides-heads] not divisible by tp_size=3
return require "dialects.credit" {
  world_size = 3, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "none", tensor = 3 } },
}
