-- expect: ok local tok_embeddings.weight 128,64 | count tp all_gather 1 | equal
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" { size = "tiny", tied = true },
  hf = { torch_dtype = "float32", class = "SomeForCausalLM", tp_plan = { ["model.layers.*.self_attn.q_proj"] = "colwise", ["model.layers.*.self_attn.k_proj"] = "colwise",
    ["model.layers.*.self_attn.v_proj"] = "colwise", ["model.layers.*.self_attn.o_proj"] = "rowwise", lm_head = "colwise_rep" } },
  distributed = { tp_size = 2 },
}
