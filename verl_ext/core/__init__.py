"""Shared basics: user-facing errors, settings, JSON lines, versions, the glossary.

Imports nothing else of this project.
"""
