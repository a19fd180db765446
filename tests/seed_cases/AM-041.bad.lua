-- expect: error[divides-heads] num_attention_heads (4) | tp_size (3)
-- expect: error[divides-heads] num_key_value_heads (2)
return require "dialects.automodel" {
  world_size = 3, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32", class = "MistralForCausalLM" },
  distributed = { tp_size = 3 },
}
