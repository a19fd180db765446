-- expect: ok mesh dp_replicate=4 | start equal
return require "dialects.credit" {
  world_size = 4, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "ddp", tensor = 1 }, seed_by_dp_rank = "after_build" },
}
