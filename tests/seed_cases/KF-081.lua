-- expect: ok experts 3 | local layers.0.mlp.w1.weight 3,64,256
-- Experts are always packed, also without the request. The product of all experts together equals a product for
-- each expert: tests/unit/passes/test_experts_dense.c.
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 1, n_heads = 8, vocab_size = 256, num_experts = 3, moe_packed_experts = true },
  train = { batch_size = 1, seq_len = 64 },
}
