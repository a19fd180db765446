return require "dialects.kempnerforge" {
  world = 4,
  model = { dim = 16, n_layers = 1, n_heads = 2, vocab_size = 30, ffn_hidden_dim = 24, max_seq_len = 8 },
  train = { batch_size = 1, seq_len = 8, grad_accum_steps = 2, activation_checkpointing = "full", max_steps = 10,
    mixed_precision = "fp32", compile_model = false },
  scheduler = { name = "none" },
  distributed = { tp = 2 },
}
