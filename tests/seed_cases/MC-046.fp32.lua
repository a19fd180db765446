-- expect: note[not-applied] no fsdp2_mp_policy all is fp32
-- expect: ok precision f32 f32 f32 | equal
return require "dialects.credit" {
  world_size = 2, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "fsdp2", tensor = 1 }, use_spectral_norm = true, amp = true },
}
