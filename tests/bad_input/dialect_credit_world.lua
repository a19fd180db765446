-- No processes: one mistake, one error.
return require "dialects.credit" {
  world_size = 0,
  seq_length = 64,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "ddp" } },
}
