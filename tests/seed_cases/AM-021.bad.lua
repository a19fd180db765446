-- expect: error[ac-scope] got 'lingual'
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { activation_checkpointing = true, activation_checkpointing_scope = "lingual+vision" },
}
