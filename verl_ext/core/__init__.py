"""What everything builds on: errors for people, settings, JSON lines, versions, the glossary.

Imports nothing of ours.
"""
