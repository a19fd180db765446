-- expect: note[seed-before-build] 4 replicas
-- expect: ok original miles-credit
return require "dialects.credit" {
  world_size = 4, seq_length = 16, as = "original",
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "ddp", tensor = 1 }, seed_by_dp_rank = "before_build" },
}
