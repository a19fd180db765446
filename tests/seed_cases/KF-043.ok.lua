-- expect: ok mesh pp=2 | stages 1,1
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 0, moe_top_k = 2 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { pp = 2 },
}
