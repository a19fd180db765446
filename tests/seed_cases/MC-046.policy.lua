-- expect: note[spectral-norm] stay fp32 | param_dtype = bf16
-- expect: ok precision f32 bf16 f32
return require "dialects.credit" {
  world_size = 2, seq_length = 16,
  model = require "models.wxformer" { size = "tiny", use_spectral_norm = true },
  trainer = { parallelism = { data = "fsdp2", tensor = 1 }, amp = true, fsdp2_mp_policy = { param_dtype = "bfloat16" } },
}
