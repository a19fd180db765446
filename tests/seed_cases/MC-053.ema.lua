-- expect: warning[not-applied] use_ema | to the CPU | memory of the GPU
-- expect: ok mesh dp_shard=2
return require "dialects.credit" {
  world_size = 2, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "fsdp2", tensor = 1 }, use_ema = true },
}
