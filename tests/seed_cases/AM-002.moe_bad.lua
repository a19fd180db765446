-- expect: error[unknown-key] ignore_router | ignore_router_for_ac
-- expect: error[unknown-word] only 'attn'; got 'mlp'
-- expect: error[dialect-unsupported] lm_head_precision
-- expect: error[dialect-unsupported] mp_policy of experts
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.qwen" { size = "3-moe-tiny", capacity_factor = "all" },
  hf = { torch_dtype = "float32" },
  distributed = { ep_size = 2,
    moe = { ignore_router = true, activation_checkpointing_modules = { "mlp" }, lm_head_precision = "float32", mp_policy = {} } },
}
