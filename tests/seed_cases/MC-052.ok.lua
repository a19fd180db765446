-- expect: warning[fp16-unscaled]
-- expect: ok precision f32 f16 f32
return require "dialects.credit" {
  world_size = 2, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "fsdp2", tensor = 1 }, amp = true, fsdp2_mp_policy = { param_dtype = "Half", output_dtype = "Half" } },
}
