-- expect: error[ep-without-experts] ep > 1 requires an MoE model: ep = 2, num_experts = 0
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { ep = 2 },
}
