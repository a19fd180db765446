-- expect: error[model-class] NemotronHForCausalLM | a hybrid of attention and state spaces
return require "dialects.automodel" {
  world_size = 4, seq_length = 64,
  model = require "models.llama" "tiny",
  hf = { class = "NemotronHForCausalLM", torch_dtype = "float32" },
  distributed = {},
}
