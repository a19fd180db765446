-- expect: ok equal | start equal | draws apart
return require "dialects.credit" {
  world_size = 4, seq_length = 16,
  model = require "models.wxformer" { size = "tiny", dropout = 0.1 },
  trainer = { parallelism = { data = "ddp", tensor = 1 }, seed_by_dp_rank = "after_build" },
}
