-- expect: note[ac-dropped] recomputes nothing
-- expect: ok parallel zero(optim_grads_params) | original automodel | recomputed nothing
return require "dialects.automodel" {
  world_size = 2, seq_length = 32, as = "original",
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { strategy = "megatron_fsdp", activation_checkpointing = true },
}
