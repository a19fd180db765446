-- expect: ok stages 4,3,3
return require "dialects.kempnerforge" {
  world = 3,
  model = { dim = 64, n_layers = 10, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64, grad_accum_steps = 4 },
  distributed = { pp = 3 },
}
