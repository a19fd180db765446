-- expect: warning[not-applied] ddp{}
-- expect: ok mesh none | ranks 1
return require "dialects.credit" {
  world_size = 1, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "ddp", tensor = 1 } },
}
