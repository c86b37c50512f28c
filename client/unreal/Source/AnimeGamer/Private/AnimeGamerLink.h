// What a game has outside of Unreal's objects: its place in the connection, and what it shows.
#pragma once

#include "AnimeGamerGame.h"
#include "Core/Connection.h"
#include "Core/Screen.h"
#include "CoreMinimal.h"

DECLARE_LOG_CATEGORY_EXTERN(LogAnimeGamer, Log, All);

inline FString ToText(const std::string& Text)
{
	return FString(UTF8_TO_TCHAR(Text.c_str()));
}

inline TArray<FString> ToTexts(const ag_strings& Strings)
{
	TArray<FString> Texts;
	for (size_t Number = 0; Number < Strings.count; ++Number)
	{
		Texts.Add(ToText(Strings.items[Number]));
	}
	return Texts;
}

inline TArray<FString> ToTexts(const std::vector<std::string>& Texts)
{
	TArray<FString> Converted;
	for (const std::string& Text : Texts)
	{
		Converted.Add(ToText(Text));
	}
	return Converted;
}

class FAnimeGamerLink : public animegamer_unreal::Listener
{
public:
	FAnimeGamerLink(UAnimeGamerGame& InOwner, TSharedPtr<animegamer_unreal::Connection> InConnection, const FString& Token);
	virtual ~FAnimeGamerLink() override;

	void opened(const ag_game_info& Info, const ag_understood& Seen) override;
	void offered(const std::vector<std::string>& Instructions) override;
	void heard(const ag_event& Event) override;
	void frame(animegamer_unreal::Picture& Picture) override;
	void rewound(const ag_game_info& Info) override;
	void branched(const ag_game_info& Info) override;
	void failed(const ag_error& Error) override;

	UAnimeGamerGame& Owner;
	TSharedPtr<animegamer_unreal::Connection> Connection;
	animegamer_unreal::Game* Game = nullptr;
	animegamer_unreal::Screen Screen;
	/** What the textures hold. */
	int64 ShownTicket = 0, ShownIndex = -1;
	const void* Under = nullptr;
};
