-- expect: error[unknown-word] bfloat61 | did you mean 'bfloat16'
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { mp_policy = { param_dtype = "bfloat61" } },
}
