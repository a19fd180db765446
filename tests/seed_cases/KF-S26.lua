-- expect: warning[not-applied] moe_sequence_aux_loss_weight
-- expect: ok experts 4
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 4, moe_sequence_aux_loss_weight = 0.01 },
  train = { batch_size = 1, seq_len = 64 },
}
