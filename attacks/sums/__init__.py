"""Attacks on sums of uploads, decrypted or implied by what is broadcast."""
