-- expect: error[unknown-word] floof32
return require "dialects.credit" {
  world_size = 2, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "fsdp2", tensor = 1 }, amp = true, fsdp2_mp_policy = { param_dtype = "floof32" } },
}
