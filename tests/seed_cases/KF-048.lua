-- expect: error[divides-experts] num_experts (5) must be divisible by ep (2) | ep may be 1
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 5 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { ep = 2 },
}
