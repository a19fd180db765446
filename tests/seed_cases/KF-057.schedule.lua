-- expect: error[unknown-word] Unknown moe_bias_schedule: 'exponential' | constant, cosine_decay, linear_warmup
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 8, moe_bias_schedule = "exponential" },
  train = { batch_size = 1, seq_len = 64 },
}
