-- expect: ok plan-entries 7 | weights 11 | local layers.0.mlp.up_proj.weight 64,128 | local layers.1.mlp.w1.weight 4,64,256 | equal
-- For a layer that keeps its MLP, the plan has entries for the MLP.
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 4, moe_frequency = 2 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { tp = 2 },
}
