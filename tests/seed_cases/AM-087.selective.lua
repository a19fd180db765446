-- expect: error[strategy-option] selective
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { strategy = "megatron_fsdp", activation_checkpointing = "selective" },
}
