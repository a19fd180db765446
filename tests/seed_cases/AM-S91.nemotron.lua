-- expect: ok mesh dp_shard=2 tp=2
return require "dialects.automodel" {
  world_size = 4, seq_length = 64,
  model = require "models.nemotron_h" "tiny",
  hf = { class = "NemotronHForCausalLM", torch_dtype = "float32" },
  distributed = { tp_size = 2, activation_checkpointing = true },
}
