-- expect: error[unknown-word] Unknown parallel style: 'colwise_reb'
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32", class = "SomeForCausalLM", tp_plan = { ["model.layers.*.self_attn.q_proj"] = "colwise", ["model.layers.*.self_attn.k_proj"] = "colwise",
    ["model.layers.*.self_attn.v_proj"] = "colwise", ["model.layers.*.self_attn.o_proj"] = "rowwise", lm_head = "colwise_reb" } },
  distributed = { tp_size = 2 },
}
