-- expect: ok stages 1,1,1,1
-- expect: warning[pp-bubble]
return require "dialects.kempnerforge" {
  world = 4,
  model = { dim = 64, n_layers = 4, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64, grad_accum_steps = 2 },
  distributed = { pp = 4 },
}
