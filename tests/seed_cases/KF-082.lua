-- expect: ok experts 1 | parameters 98560
-- It computes the same as the dense MLP: tests/unit/passes/test_experts_dense.c.
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 1, n_heads = 8, vocab_size = 256, num_experts = 1, moe_top_k = 1 },
  train = { batch_size = 1, seq_len = 64 },
}
